# The payloads, model/ and model-step*/, are no outputs: Snakemake would delete them before a job that may fail.
# `launcher` says where a training runs; the rules themselves are local, as a launcher submits the job and waits for it.


rule fetch_model:
    output:
        paths.pretrained("{suite}") / MANIFEST,
    log:
        "logs/{suite}/checkpoints/pretrained.log",
    wildcard_constraints:
        suite=any_of([name for name, suite in SUITES.items() if suite.pretrained and suite.sft]),
    localrule: True
    conda:
        "../../environment.yml"
    params:
        config=config_file,
        key=stage_key("fetch"),
    shell:
        "python -m sage.policy.fetch --config {params.config} 2>&1 | tee {log}"


use rule fetch_model as fetch_base with:
    output:
        paths.checkpoint("{suite}", "base", 0) / MANIFEST,
    log:
        "logs/{suite}/checkpoints/base.log",
    wildcard_constraints:
        suite=any_of([name for name, suite in SUITES.items() if not suite.sft]),


rule train_base:
    input:
        data=lambda wildcards: processed(wildcards.suite, SUITES[wildcards.suite].sft.dataset),
        model=lambda wildcards: pretrained(wildcards.suite),
    output:
        manifest=paths.checkpoint("{suite}", "base", 0) / MANIFEST,
        steps=paths.training_log("{suite}", "base", 0),
    log:
        "logs/{suite}/checkpoints/base.log",
    benchmark:
        "logs/{suite}/checkpoints/base.tsv"
    wildcard_constraints:
        suite=any_of([name for name, suite in SUITES.items() if suite.sft]),
    retries: 0
    localrule: True
    conda:
        "../../environment.yml"
    threads: lambda wildcards: SUITES[wildcards.suite].sft.threads
    resources:
        launcher="inline",
    params:
        config=config_file,
        key=stage_key("sft"),
        launch=launch_options,
    shell:
        "python -m sage.cluster launch --config {params.config} --method base {params.launch} 2>&1 | tee -i {log}"


rule train_policy:
    input:
        base=paths.checkpoint("{suite}", "base", 0) / MANIFEST,
        problems=lambda wildcards: processed(wildcards.suite, SUITES[wildcards.suite].rl.dataset),
    output:
        manifest=paths.checkpoint("{suite}", "{method}", "{seed}") / MANIFEST,
        steps=paths.training_log("{suite}", "{method}", "{seed}"),
    log:
        "logs/{suite}/checkpoints/{method}/seed{seed}.log",
    benchmark:
        "logs/{suite}/checkpoints/{method}/seed{seed}.tsv"
    wildcard_constraints:
        method=any_of(every(grid.trained)),
    retries: 0
    localrule: True
    conda:
        "../../environment.yml"
    threads: lambda wildcards: SUITES[wildcards.suite].rl.processes * SUITES[wildcards.suite].rl.threads
    resources:
        launcher="inline",
    params:
        config=config_file,
        key=stage_key("rl"),
        launch=launch_options,
    shell:
        "python -m sage.cluster launch --config {params.config} --method {wildcards.method} --seed {wildcards.seed}"
        " {params.launch} 2>&1 | tee -i {log}"

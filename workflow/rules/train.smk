# The payloads, model/ and model-step*/, are no outputs: Snakemake would delete them before a job that may fail.


rule train_base:
    input:
        lambda wildcards: processed(wildcards.suite, SUITES[wildcards.suite].sft.dataset),
    output:
        manifest=paths.checkpoint("{suite}", "base", 0) / MANIFEST,
        steps=paths.training_log("{suite}", "base", 0),
    log:
        "logs/{suite}/checkpoints/base.log",
    benchmark:
        "logs/{suite}/checkpoints/base.tsv"
    conda:
        "../../environment.yml"
    threads: lambda wildcards: SUITES[wildcards.suite].sft.threads
    params:
        config=config_file,
        key=stage_key("sft"),
    shell:
        "python -m sage.train.sft --config {params.config} 2>&1 | tee {log}"


rule train_policy:
    input:
        base=rules.train_base.output.manifest,
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
    conda:
        "../../environment.yml"
    threads: lambda wildcards: SUITES[wildcards.suite].rl.threads
    params:
        config=config_file,
        key=stage_key("rl"),
    shell:
        "python -m sage.train --config {params.config} --method {wildcards.method} --seed {wildcards.seed}"
        " 2>&1 | tee {log}"

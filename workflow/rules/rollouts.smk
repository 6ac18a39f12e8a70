# Not in `all`: the browser's parts are not in git, and a clone without payloads could not make them. The entropies are.


rule annotate_rollouts:
    input:
        checkpoint=lambda wildcards: paths.checkpoint(wildcards.suite, wildcards.method, wildcards.seed) / MANIFEST,
        base=paths.checkpoint("{suite}", "base", 0) / MANIFEST,
        problems=lambda wildcards: [processed(wildcards.suite, name) for name in SUITES[wildcards.suite].benchmarks],
        samples=lambda wildcards: [
            paths.samples(wildcards.suite, wildcards.method, wildcards.seed, name) / MANIFEST
            for name in SUITES[wildcards.suite].benchmarks
        ],
        code="sage/annotate.py",
    output:
        annotated=paths.rollouts("{suite}", "{method}", "{seed}") / MANIFEST,
        entropies=paths.entropies("{suite}", "{method}", "{seed}"),
    log:
        "logs/{suite}/rollouts/{method}/seed{seed}.log",
    conda:
        "../../environment.yml"
    threads: lambda wildcards: SUITES[wildcards.suite].rl.threads
    params:
        config=config_file,
        key=stage_key("annotate"),
    shell:
        "python -m sage.annotate --config {params.config} --method {wildcards.method} --seed {wildcards.seed}"
        " 2>&1 | tee {log}"


rule rollouts:
    input:
        [file for suite in SUITES.values() for file in grid.rollouts(suite)],
    localrule: True

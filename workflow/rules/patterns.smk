# A target of its own, as the rollouts are: it reads payloads. Its files are small and in git, and the report shows them.


rule find_patterns:
    input:
        samples=lambda wildcards: [
            paths.samples(wildcards.suite, wildcards.method, wildcards.seed, name) / MANIFEST
            for name in SUITES[wildcards.suite].benchmarks
        ],
        code="sage/patterns.py",
    output:
        paths.patterns("{suite}", "{method}", "{seed}"),
    log:
        "logs/{suite}/patterns/{method}/seed{seed}.log",
    conda:
        "../../environment.yml"
    params:
        config=config_file,
    shell:
        "python -m sage.patterns --config {params.config} --method {wildcards.method} --seed {wildcards.seed}"
        " 2>&1 | tee {log}"


rule patterns:
    input:
        [file for suite in SUITES.values() for file in grid.patterns(suite)],
    localrule: True

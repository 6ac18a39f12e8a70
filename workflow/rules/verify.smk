# Nothing asks for `answers`: it comes with the counts, and where those are older than it, the report shows a hole.
rule verify_samples:
    input:
        samples=rules.sample_benchmark.output,
        problems=lambda wildcards: processed(wildcards.suite, wildcards.benchmark),
    output:
        metrics=paths.metrics("{suite}", "{method}", "{seed}") / "{benchmark}.json",
        counts=paths.metrics("{suite}", "{method}", "{seed}") / "{benchmark}.counts.json",
        answers=paths.metrics("{suite}", "{method}", "{seed}") / "{benchmark}.answers.json",
    log:
        "logs/{suite}/metrics/{method}/seed{seed}/{benchmark}.log",
    conda:
        "../../environment.yml"
    params:
        config=config_file,
        key=stage_key("verify"),
    shell:
        "python -m sage.evaluate.verify --config {params.config} --method {wildcards.method} --seed {wildcards.seed}"
        " --benchmark {wildcards.benchmark} --workers {threads} 2>&1 | tee {log}"

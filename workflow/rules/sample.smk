rule sample_part:
    input:
        checkpoint=lambda wildcards: paths.checkpoint(wildcards.suite, wildcards.method, wildcards.seed) / MANIFEST,
        problems=lambda wildcards: [processed(wildcards.suite, name) for name in SUITES[wildcards.suite].benchmarks],
    output:
        temp(touch(PARTS)),
    log:
        "logs/{suite}/samples/{method}/seed{seed}/part{part}.log",
    conda:
        "../../environment.yml"
    threads: lambda wildcards: SUITES[wildcards.suite].sample.workers * SUITES[wildcards.suite].sample.threads
    params:
        config=config_file,
        key=stage_key("sample"),
        benchmarks=lambda wildcards: SUITES[wildcards.suite].benchmarks,
    shell:
        "python -m sage.evaluate.sample --config {params.config} --method {wildcards.method} --seed {wildcards.seed}"
        " --benchmark {params.benchmarks} --part {wildcards.part} 2>&1 | tee {log}"


rule sample_benchmark:
    input:
        checkpoint=lambda wildcards: paths.checkpoint(wildcards.suite, wildcards.method, wildcards.seed) / MANIFEST,
        problems=lambda wildcards: processed(wildcards.suite, wildcards.benchmark),
        parts=sampling_parts,
    output:
        paths.samples("{suite}", "{method}", "{seed}", "{benchmark}") / MANIFEST,
    log:
        "logs/{suite}/samples/{method}/seed{seed}/{benchmark}.log",
    benchmark:
        "logs/{suite}/samples/{method}/seed{seed}/{benchmark}.tsv"
    conda:
        "../../environment.yml"
    threads: lambda wildcards: SUITES[wildcards.suite].sample.workers * SUITES[wildcards.suite].sample.threads
    params:
        config=config_file,
        key=stage_key("sample"),
    shell:
        "python -m sage.evaluate.sample --config {params.config} --method {wildcards.method} --seed {wildcards.seed}"
        " --benchmark {wildcards.benchmark} 2>&1 | tee {log}"

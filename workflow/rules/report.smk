rule render_report:
    input:
        metrics=lambda wildcards: grid.metrics(SUITES[wildcards.suite]),
        counts=lambda wildcards: grid.counts(SUITES[wildcards.suite]),
        steps=lambda wildcards: grid.training_logs(SUITES[wildcards.suite]),
    output:
        page=paths.report("{suite}") / "index.html",
        table=paths.report("{suite}") / "tables/main.csv",
        numbers=paths.report("{suite}") / "numbers.json",
    log:
        "logs/{suite}/report.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        config=config_file,
    shell:
        "python -m sage.report --config {params.config} 2>&1 | tee {log}"

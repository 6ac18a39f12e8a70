rule render_report:
    input:
        metrics=lambda wildcards: grid.metrics(SUITES[wildcards.suite]),
        counts=lambda wildcards: grid.counts(SUITES[wildcards.suite]),
        answers=lambda wildcards: grid.answers(SUITES[wildcards.suite]),
        steps=lambda wildcards: grid.training_logs(SUITES[wildcards.suite]),
        claims=paths.CLAIMS,
        code=sorted(file for file in Path("sage/report").rglob("*") if file.suffix in (".py", ".html")),
    output:
        page=paths.report("{suite}") / "index.html",
        table=paths.report("{suite}") / "tables/main.csv",
        findings=paths.report("{suite}") / "findings.md",
        numbers=paths.report("{suite}") / "numbers.json",
    log:
        "logs/{suite}/report.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        config=config_file,
        title=lambda wildcards: SUITES[wildcards.suite].title,
        labels=lambda wildcards: [method.label for method in SUITES[wildcards.suite].loaded_methods.values()],
    shell:
        "python -m sage.report --config {params.config} 2>&1 | tee {log}"

rule render_report:
    input:
        metrics=lambda wildcards: grid.metrics(SUITES[wildcards.suite]),
        counts=lambda wildcards: grid.counts(SUITES[wildcards.suite]),
        steps=lambda wildcards: grid.training_logs(SUITES[wildcards.suite]),
        patterns=lambda wildcards: [file for file in grid.patterns(SUITES[wildcards.suite]) if file.is_file()],
        entropies=lambda wildcards: [file for file in grid.entropies(SUITES[wildcards.suite]) if file.is_file()],
        claims=paths.CLAIMS,
        reported=paths.REPORTED,
        code=sorted(file for file in Path("sage/report").rglob("*") if file.suffix in (".py", ".html", ".css", ".js")),
    output:
        page=paths.report("{suite}") / "index.html",
        table=report(paths.report("{suite}") / "tables/main.csv", category="{suite}", labels={"what": "every seed"}),
        findings=report(paths.report("{suite}") / "findings.md", category="{suite}", labels={"what": "findings"}),
        pass_at_k=report(
            paths.report("{suite}") / "figures/pass_at_k.svg", category="{suite}", labels={"what": "pass@k"}
        ),
        support=report(paths.report("{suite}") / "figures/support.svg", category="{suite}", labels={"what": "support"}),
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

rule track_payloads:
    input:
        manifests=lambda wildcards: grid.manifests(SUITES[wildcards.suite]),
        last=rules.render_report.output.numbers,
    output:
        paths.tracked("{suite}"),
    log:
        "logs/{suite}/track.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        config=config_file,
    shell:
        "python -m sage.track --config {params.config} 2>&1 | tee {log}"

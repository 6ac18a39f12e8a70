rule process_data:
    output:
        paths.processed("{suite}", "{dataset}") / MANIFEST,
    log:
        "logs/{suite}/processed/{dataset}.log",
    localrule: True  # a source may be an address, and compute nodes often reach no network
    conda:
        "../../environment.yml"
    params:
        config=config_file,
        key=stage_key("data"),
    shell:
        "python -m sage.tasks build --config {params.config} --dataset {wildcards.dataset} 2>&1 | tee {log}"

rule solve_oracle:
    input:
        code=sorted([*Path("sage/oracle").glob("*.py"), *Path("sage/objective").glob("*.py")]),
    output:
        table="reports/oracle/fixed_points.csv",
        figure="reports/oracle/fixed_points.svg",
        picture="reports/oracle/fixed_points.png",
    log:
        "logs/oracle.log",
    localrule: True
    conda:
        "../../environment.yml"
    shell:
        "python -m sage.oracle 2>&1 | tee {log}"

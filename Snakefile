from snakemake.utils import min_version

min_version("9.0")


if not workflow.overwrite_configfiles:  # Snakemake would merge the default suite into the chosen ones

    configfile: "workflow/config/demo.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/sample.smk"
include: "workflow/rules/verify.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/patterns.smk"
include: "workflow/rules/rollouts.smk"
include: "workflow/rules/track.smk"
include: "workflow/rules/oracle.smk"


rule all:
    default_target: True
    input:
        [targets(suite) for suite in SUITES.values()],

"""Training runs as jobs: submitted through submitit, attached to, watched, resubmitted; and the state of the whole grid."""

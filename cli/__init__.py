"""The `toksplice` command: one thin module per command; `cli.wiring` builds what the commands run."""

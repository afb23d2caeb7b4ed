"""`toksplice verify --faults`: every fault of the catalogue is planted in a running pipeline, and must be found."""

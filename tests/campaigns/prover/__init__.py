"""The campaign that tries to break the prover: mutants must be refused, benign variants proved."""

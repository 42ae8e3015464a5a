"""Is anything lost, are the numbers right? Each experiment draws worlds whose truth is known."""

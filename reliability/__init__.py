"""Is anything lost, are the numbers right? Each script draws worlds whose truth is known."""

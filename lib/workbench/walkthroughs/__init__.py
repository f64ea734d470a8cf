"""The walkthroughs: what is particular to each."""

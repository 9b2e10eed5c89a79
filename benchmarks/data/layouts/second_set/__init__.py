"""The layouts of the group `heldout-2`, written without a look at the tool that they test."""

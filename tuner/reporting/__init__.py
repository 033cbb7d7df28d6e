"""`rltune report`: what a run found, as a page, as pictures and as Markdown."""

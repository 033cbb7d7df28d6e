"""The Hugging Face hub: `rltune push` puts the policy of a run there, `rltune pull` fetches one."""

"""The environment server as a Hugging Face Space: what it is made of, the folder, and its way to the hub."""

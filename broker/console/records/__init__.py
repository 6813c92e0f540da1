"""Records of a topic, as the console reads, decodes, filters and shows them."""

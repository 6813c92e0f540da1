"""The metrics of each part of a broker, by their subjects: names, texts, and where the values come from."""

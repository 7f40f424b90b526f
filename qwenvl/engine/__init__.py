"""The model: from a folder of weights to pieces of text. Only this package imports torch and transformers."""

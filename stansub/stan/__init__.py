"""From the text and the data of a Stan program to a posterior."""

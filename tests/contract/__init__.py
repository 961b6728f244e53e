"""The listing of everything that a user of podsettle names, and its comparison between commits."""

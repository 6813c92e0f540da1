"""What people look at while a broker runs."""

"""What people see while a broker runs."""

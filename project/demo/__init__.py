"""What is `manage.py demo` made of? Child processes, servers, the first rows, and traffic."""

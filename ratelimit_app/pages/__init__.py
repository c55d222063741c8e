"""What do people look at beside lists and forms? The pages behind the admin, and how they write numbers."""

"""What several tampering servers share."""

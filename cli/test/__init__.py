"""Load tests, soaks and labs."""

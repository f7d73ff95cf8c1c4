"""The processes of a run in a job, and the view that its worker has of them."""

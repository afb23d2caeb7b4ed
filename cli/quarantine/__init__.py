"""`toksplice shadow`: what the shadow check found wrong, making it come again, and closing breakers."""

"""The shadow check: sampled answers are encoded again, behind the answers, and wrong ones are acted on."""

"""A deployment on AWS: its CloudFormation stacks and their cost (`cloud`), and its files (`publish`)."""

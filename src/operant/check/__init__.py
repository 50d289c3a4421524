"""`check_env`: does an environment do what training needs?"""

"""How fast is it, beside what others would run, and how does that grow?"""

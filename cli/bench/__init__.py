"""`toksplice bench`: the library measured beside what a user would pick instead, in one run.

command        the command line: what to measure, with which tokenizers, where the results go
peers          which libraries, at which pinned versions, and which of them takes part in what
environments   a virtual environment for each peer, made on demand
peer           the program that runs inside a peer's environment and holds the clock; imports nothing of ours
process        the other end of its pipes
corpus         the text: recorded sessions, a plain file, or synthetic sessions
scenarios      edits of a conversation, each a recipe for a context and what is done to it
rounds         the lanes of a tokenizer, and running them in turn
repair, full, memory   the three measurements
statistic      medians, percentiles, ratios taken round by round
report         rows as tables: for a terminal, and as Markdown
"""

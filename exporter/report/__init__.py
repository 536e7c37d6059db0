"""Who held and used what over a span: counting, grouping, prices, and the forms that a report is written in. Pure."""

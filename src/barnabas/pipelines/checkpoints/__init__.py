"""What a flow's checkpoint holds beside Spark's own files, and what may be changed in it.

Needs no Spark.

Spark: OffsetSeqLog and CommitLog are its log of micro-batches; here they are read.
"""

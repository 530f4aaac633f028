"""``barnabas pipeline dashboard``: charts over what a flow has put into its sinks, live, and the
same figures for Prometheus.

Needs neither Spark nor a running flow: it reads the flow's database, lake table or index. Needs the
extra ``outputs``. Spark: the StreamingQueryStatisticsPage of its UI, and PrometheusServlet.
"""

"""The servers and clusters that run on this machine.

Kafka has no counterpart; `kafka-server-stop.sh` looks for processes of the class `kafka.Kafka`, as
`KafkaServer` runs there.
"""

"""The types of keys and values of clients: text, unless a codec says otherwise.

Type checkers know the default of a type variable, so a constructor needs one signature.
Python knows it from 3.13 on.

In Kafka: the parameters of `KafkaProducer<K, V>` and `KafkaConsumer<K, V>`.
"""

from typing import TYPE_CHECKING

__all__ = ["K", "K_contra", "V", "V_contra"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # from the checker's own stubs: no package is needed

    K = TypeVar("K", default=str)
    V = TypeVar("V", default=str)
    # A producer without a serializer sends bytes as they are, too.
    K_contra = TypeVar("K_contra", contravariant=True, default=str | bytes)
    V_contra = TypeVar("V_contra", contravariant=True, default=str | bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
    K_contra = TypeVar("K_contra", contravariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)

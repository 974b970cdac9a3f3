"""Data sets: arrays kept as they are stored, texts as numbers, and where to get them."""

from pullback.data.characters import Alphabet, character_rows, character_streams, read_text
from pullback.data.corpus import Corpus, LabelledTexts, Reviews
from pullback.data.dataset import Dataset, LabelledImages, epoch_order
from pullback.data.digits import load_digits, load_digits_or_mnist
from pullback.data.generated_reviews import generate_reviews, load_imdb_or_generated
from pullback.data.glove import WordVectors, read_glove, write_glove
from pullback.data.idx import read_idx, write_idx
from pullback.data.imdb import load_imdb
from pullback.data.lengths import bucketed_order, trimmed_width
from pullback.data.mnist import load_mnist
from pullback.data.pictures import read_pictures
from pullback.data.text import Vocabulary, tokenise

__all__ = [
    "Alphabet",
    "Corpus",
    "Dataset",
    "LabelledImages",
    "LabelledTexts",
    "Reviews",
    "Vocabulary",
    "WordVectors",
    "bucketed_order",
    "character_rows",
    "character_streams",
    "epoch_order",
    "generate_reviews",
    "load_digits",
    "load_digits_or_mnist",
    "load_imdb",
    "load_imdb_or_generated",
    "load_mnist",
    "read_glove",
    "read_idx",
    "read_pictures",
    "read_text",
    "tokenise",
    "trimmed_width",
    "write_glove",
    "write_idx",
]

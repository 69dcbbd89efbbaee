"""The language of a text, told by script and function words."""

from __future__ import annotations

import pytest

from poolscope.texts.languages import language_of

SENTENCES = {
    "English": "The package is a library that reads the files of an archive and checks them.",
    "German": "Das Paket ist eine Bibliothek, die Dateien eines Archivs liest und sie mit dem Verzeichnis prüft.",
    "French": "Le paquet est une bibliothèque qui lit les fichiers dans une archive pour les vérifier.",
    "Spanish": "El paquete es una biblioteca que lee los archivos y los comprueba con el índice del disco.",
    "CYRILLIC": "Пакет читает файлы архива.",
    "GREEK": "Το πακέτο διαβάζει αρχεία.",
    "": "foo(bar) = 42",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_has_its_language(language):
    assert language_of(SENTENCES[language]) == language


@pytest.mark.parametrize("text", ["", "12 + 30", "Müller Meier Schulze", "the der le el"])
def test_what_has_no_language_is_not_guessed(text):
    assert language_of(text) == ""

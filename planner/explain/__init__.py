"""Shows what will run and why: as text, as data, and as pictures.

- `text`, `rules` and `places` write the words and the plain data. `brief` writes the most important of them in at most
  40 lines.
- `diagram` makes boxes and arrows of the data. `mermaid` writes them as text, and `layout`, `arrows` and `svg` draw
  them for a `page`.
- `comparison` sets two plans side by side.
- `formats` has the functions for callers.
"""

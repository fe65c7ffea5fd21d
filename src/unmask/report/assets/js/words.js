// Two texts word by word: which words they share, in order (the longest common subsequence).
const compareWords = (() => {
  const MOST = 700;
  const split = (text) => text.match(/\s+|\w+|[^\s\w]/gu) ?? [];

  // Neighbouring words of the same kind become one piece: [text, whether it is shared].
  function pieces(words, shared) {
    const found = [];
    words.forEach((word, place) => {
      const last = found.at(-1);
      if (last && last[1] === shared[place]) last[0] += word;
      else found.push([word, shared[place]]);
    });
    return found;
  }

  return (first, second) => {
    const one = split(first), two = split(second);
    const marksOne = new Array(one.length).fill(false), marksTwo = new Array(two.length).fill(false);
    let start = 0;
    while (start < one.length && start < two.length && one[start] === two[start]) {
      marksOne[start] = marksTwo[start] = true;
      start++;
    }
    const rows = one.length - start, columns = two.length - start;
    if (rows <= MOST && columns <= MOST) {
      const width = columns + 1;
      const lengths = new Uint16Array((rows + 1) * width);
      for (let i = rows - 1; i >= 0; i--) {
        for (let j = columns - 1; j >= 0; j--) {
          lengths[i * width + j] = one[start + i] === two[start + j]
            ? lengths[(i + 1) * width + j + 1] + 1
            : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
        }
      }
      for (let i = 0, j = 0; i < rows && j < columns;) {
        if (one[start + i] === two[start + j]) marksOne[start + i++] = marksTwo[start + j++] = true;
        else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i++;
        else j++;
      }
    }
    return [pieces(one, marksOne), pieces(two, marksTwo)];
  };
})();
